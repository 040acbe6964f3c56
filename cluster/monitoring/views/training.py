"""Progress of one or several runs."""

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
            "Estimate for the remaining steps and evaluations, at the current pace.",
            "s",
            Query('max by (run) (edgeddl_remaining_seconds{run=~"$run"})', "{{run}}"),
            lowest=0,
        ),
        number(
            "Loss",
            "Training loss of the last step. It varies between steps and should fall over many"
            " steps.",
            "none",
            Query('max by (run) (edgeddl_loss{run=~"$run"})', "{{run}}"),
            lowest=0,
        ),
        number(
            "Accuracy",
            "Fraction of test images classified correctly in the last evaluation. Random guesses"
            " among ten classes reach 10 %.",
            "percentunit",
            Query('max by (run) (edgeddl_accuracy_ratio{run=~"$run"})', "{{run}}"),
            lowest=0,
            highest=1,
        ),
        number(
            "Throughput",
            "Images per second over all ranks in the last steps, without evaluations.",
            "suffix: img/s",
            Query('edgeddl_cluster_images_per_second{run=~"$run"}', "{{run}}"),
            lowest=0,
        ),
        number(
            "Time since last checkpoint",
            "Training time that would be lost if the run were killed now.",
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
            "Training loss of each step, and test loss after each epoch. If the test loss rises"
            " while the training loss falls, the network overfits.",
            "none",
            Query('max by (run) (edgeddl_loss{run=~"$run"})', "{{run}} training"),
            Query('max by (run) (edgeddl_test_loss{run=~"$run"})', "{{run}} test"),
            lowest=0,
        ),
        graph(
            "Accuracy",
            "Fraction of test images classified correctly in each evaluation.",
            "percentunit",
            Query('max by (run) (edgeddl_accuracy_ratio{run=~"$run"})', "{{run}}"),
            lowest=0,
            highest=1,
        ),
        graph(
            "Learning rate",
            "Learning rate of each step: rises during warm-up, then follows --schedule.",
            "none",
            Query('max by (run) (edgeddl_learning_rate{run=~"$run"})', "{{run}}"),
            lowest=0,
        ),
        graph(
            "Throughput",
            "Images per second of each rank and of all ranks together. Ranks step together, so one"
            " slow rank slows all of them.",
            "suffix: img/s",
            Query('edgeddl_cluster_images_per_second{run=~"$run"}', "{{run}} all"),
            Query('edgeddl_images_per_second{run=~"$run"}', "rank {{rank}} {{host}}"),
            lowest=0,
        ),
        graph(
            "Efficiency",
            "Throughput relative to ranks that never wait for each other: in the last steps, and"
            " mean over five minutes.",
            "percentunit",
            Query('edgeddl_cluster_scaling_efficiency_ratio{run=~"$run"}', "{{run}} now"),
            Query('run:edgeddl_scaling_efficiency:avg5m{run=~"$run"}', "{{run}} mean"),
            lowest=0,
            highest=1,
            colours=((None, "red"), (0.5, "yellow"), (0.8, "green")),
        ),
        graph(
            "Time remaining",
            "Estimated time to the end of the run. It rises if the run slows down.",
            "s",
            Query('max by (run) (edgeddl_remaining_seconds{run=~"$run"})', "{{run}}"),
            lowest=0,
        ),
        graph(
            "Step time",
            "Mean and 95th percentile of the step time, over all ranks.",
            "s",
            Query(
                'sum by (run) (rate(edgeddl_step_seconds_sum{run=~"$run"}[$__rate_interval]))'
                ' / sum by (run) (rate(edgeddl_step_seconds_count{run=~"$run"}[$__rate_interval]))',
                "{{run}} mean",
            ),
            Query(
                "histogram_quantile(0.95, sum by (run, le)"
                ' (rate(edgeddl_step_seconds_bucket{run=~"$run"}[$__rate_interval])))',
                "{{run}} p95",
            ),
            lowest=0,
        ),
        graph(
            "Memory per rank",
            "Resident memory of each rank. If it keeps rising, the run runs out of memory.",
            "bytes",
            Query('edgeddl_resident_memory_bytes{run=~"$run"}', "rank {{rank}} {{host}}"),
            lowest=0,
        ),
        graph(
            "Images per step and rank",
            "Each rank's share of the global batch. --balance auto gives slow boards fewer images.",
            "none",
            Query('edgeddl_batch_images{run=~"$run"}', "rank {{rank}} {{host}}"),
            lowest=0,
        ),
    ),
)

TRAINING = Dashboard(
    "training",
    "Training",
    "Progress of runs: loss, accuracy, learning rate, throughput, efficiency, time remaining.",
    (RUN,),
    (NOW, COURSE),
)
