"""How a run goes; several runs side by side."""

from __future__ import annotations

from cluster.monitoring.panels import RUN, Dashboard, Query, Row, graph, number

NOW = Row(
    "Now",
    (
        number(
            "Progress",
            "Completed epochs over planned epochs.",
            "percentunit",
            Query('max by (run) (edgeddl_epoch{run=~"$run"} / edgeddl_planned_epochs)', "{{run}}"),
            lowest=0,
            highest=1,
        ),
        number(
            "Time remaining",
            "What the remaining steps will take at the pace so far, evaluations included.",
            "s",
            Query('max by (run) (edgeddl_remaining_seconds{run=~"$run"})', "{{run}}"),
            lowest=0,
        ),
        number(
            "Loss",
            "Of the last step: how wrong the network is. It jumps from step to step; what counts is"
            " that it falls over many.",
            "none",
            Query('max by (run) (edgeddl_loss{run=~"$run"})', "{{run}}"),
            lowest=0,
        ),
        number(
            "Accuracy",
            "Fraction of the test images that the network classifies correctly, in the last"
            " evaluation. By chance it would be 10 %.",
            "percentunit",
            Query('max by (run) (edgeddl_accuracy_ratio{run=~"$run"})', "{{run}}"),
            lowest=0,
            highest=1,
        ),
        number(
            "Throughput",
            "Images per second of all ranks over the last steps, without evaluations.",
            "suffix: img/s",
            Query('edgeddl_cluster_images_per_second{run=~"$run"}', "{{run}}"),
            lowest=0,
        ),
        number(
            "Time since last checkpoint",
            "How much training would be lost if the power failed now.",
            "s",
            Query('edgeddl_checkpoint_age_seconds{run=~"$run"}', "{{run}}"),
            lowest=0,
        ),
    ),
)

COURSE = Row(
    "Over time",
    (
        graph(
            "Loss",
            "On the training images at each step, and on the test images after each epoch. If the"
            " second rises while the first falls, the network overfits.",
            "none",
            Query('max by (run) (edgeddl_loss{run=~"$run"})', "{{run}} training"),
            Query('max by (run) (edgeddl_test_loss{run=~"$run"})', "{{run}} test"),
            lowest=0,
        ),
        graph(
            "Accuracy",
            "Fraction of the test images classified correctly, after each evaluation.",
            "percentunit",
            Query('max by (run) (edgeddl_accuracy_ratio{run=~"$run"})', "{{run}}"),
            lowest=0,
            highest=1,
        ),
        graph(
            "Learning rate",
            "How far each step goes: it rises while warming up and falls by --schedule.",
            "none",
            Query('max by (run) (edgeddl_learning_rate{run=~"$run"})', "{{run}}"),
            lowest=0,
        ),
        graph(
            "Throughput",
            "Images per second of each rank and of all together. Equal steps for all: one slow rank"
            " pulls down every line.",
            "suffix: img/s",
            Query('edgeddl_cluster_images_per_second{run=~"$run"}', "{{run}} all"),
            Query('edgeddl_images_per_second{run=~"$run"}', "rank {{rank}} {{host}}"),
            lowest=0,
        ),
        graph(
            "Efficiency",
            "Throughput over what the ranks would do if none ever waited for another: of the last"
            " steps, and its mean over five minutes.",
            "percentunit",
            Query('edgeddl_cluster_scaling_efficiency_ratio{run=~"$run"}', "{{run}} now"),
            Query('run:edgeddl_scaling_efficiency:avg5m{run=~"$run"}', "{{run}} mean"),
            lowest=0,
            highest=1,
            colours=((None, "red"), (0.5, "yellow"), (0.8, "green")),
        ),
        graph(
            "Time remaining",
            "A straight line down to zero when all goes well; it rises when the run slows down.",
            "s",
            Query('max by (run) (edgeddl_remaining_seconds{run=~"$run"})', "{{run}}"),
            lowest=0,
        ),
        graph(
            "Step time",
            "Mean and slowest steps (19 of 20 are faster), over all ranks.",
            "s",
            Query(
                'sum by (run) (rate(edgeddl_step_seconds_sum{run=~"$run"}[$__rate_interval]))'
                ' / sum by (run) (rate(edgeddl_step_seconds_count{run=~"$run"}[$__rate_interval]))',
                "{{run}} mean",
            ),
            Query(
                "histogram_quantile(0.95, sum by (run, le)"
                ' (rate(edgeddl_step_seconds_bucket{run=~"$run"}[$__rate_interval])))',
                "{{run}} slow",
            ),
            lowest=0,
        ),
        graph(
            "Memory per rank",
            "Resident memory of each rank. If it keeps rising, the run will run out of memory.",
            "bytes",
            Query('edgeddl_resident_memory_bytes{run=~"$run"}', "rank {{rank}} {{host}}"),
            lowest=0,
        ),
        graph(
            "Images per step and rank",
            "Each rank's part of the global batch; --balance auto gives a slow board less.",
            "none",
            Query('edgeddl_batch_images{run=~"$run"}', "rank {{rank}} {{host}}"),
            lowest=0,
        ),
    ),
)

TRAINING = Dashboard(
    "training",
    "Training",
    "How a run goes: loss, accuracy, learning rate, throughput, efficiency, time left.",
    (RUN,),
    (NOW, COURSE),
)
