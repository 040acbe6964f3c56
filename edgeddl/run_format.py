"""The files in a run folder and the fields in them: training writes them, reports read them.

    runs/resnet18-cifar10/        the first run of this model and data set; then -2, -3, ...
        checkpoints/              checkpoint-00000120.npz ..., best.npz
        options.json              the options of the run
        events.jsonl              a log of the run, written while it runs
        logs/rank-0.log ...       the log of each rank, on the disk of its own host
        summary.json              the results

Each line of events.jsonl is a JSON object with an `event` and its `time` (Unix time, seconds):

    start        options, versions, host, cpu and threads of each rank, the step it starts from
    steps        losses, learning rate, and for each rank its times and images (summed over the
                 steps), its memory and the sensors of its host
    epoch        mean loss, test loss and accuracy
    balance      new shares of a step
    checkpoint   the step of a checkpoint that has been written
    end          the outcome, with figures of the summary; missing if the run was killed

A resumed run appends a `start`. Steps after the step it starts from are then repeated, and the
later lines replace the earlier ones.
"""

from __future__ import annotations

FORMAT = 1

CHECKPOINTS_FOLDER = "checkpoints"
OPTIONS_FILE = "options.json"
EVENTS_FILE = "events.jsonl"
SUMMARY_FILE = "summary.json"
LOGS_FOLDER = "logs"

START, STEPS, EPOCH, BALANCE, CHECKPOINT, END = (
    "start", "steps", "epoch", "balance", "checkpoint", "end",
)  # fmt: skip
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"  # outcomes

# The first steps after a start include one-time work: memory is touched for the first time and
# connections are made. Means leave these steps out.
WARM_UP_STEPS = 2

PHASES = ("data", "forward", "backward", "allreduce_wait", "update")
# Fields of a rank in a `steps` line: sums over the steps, then values at the last of them.
RANK_SUMS = ("seconds", *PHASES, "images")
RANK_VITALS = ("memory_bytes", "temperature_celsius", "clock_hertz", "throttling")
# Steps of a line that ranks have reported on; the last step of a run is not reported.
REPORTED_STEPS = "told_steps"

# Figures of the summary in an `end` line, of the run and of each rank. Reports show these instead
# of computing their own.
END_FIGURES = ("final_accuracy", "best_accuracy", "images_per_second", "scaling_efficiency")
END_RANK_FIGURES = ("images_per_second", "peak_memory_bytes")


def log_name(rank: int) -> str:
    """Name of a rank's log in the folder of logs."""
    return f"rank-{rank}.log"
