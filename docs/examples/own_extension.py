"""Your own extension: python docs/examples/own_extension.py

It also works on the command line: edgeddl train --extension docs.examples.own_extension:LossFile
"""

import csv
from pathlib import Path

import edgeddl


class LossFile:
    """Writes the loss and time of every step to a CSV file, on rank 0."""

    def __init__(self, run=None, path="losses.csv"):
        self.writes = run is None or run.communicator.rank == 0
        self.path = Path(path)
        self.rows = []

    def on_step(self, report):
        self.rows.append((report.state.step, report.loss, report.seconds))

    def on_epoch(self, state):
        if self.writes:
            with self.path.open("w", newline="") as file:
                csv.writer(file).writerows([("step", "loss", "seconds"), *self.rows])

    def on_pause(self, state, *, final):
        pass


def main() -> None:
    extension = LossFile(path="losses.csv")
    edgeddl.train(
        "resnet9",
        "shapes",
        image_size=16,
        limit_train=64,
        limit_test=32,
        batch_size=16,
        epochs=2,
        extensions=[extension],
    )
    print(f"wrote {len(extension.rows)} steps to {extension.path}")


if __name__ == "__main__":
    main()
