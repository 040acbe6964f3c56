"""Compare hyper-parameters and keep the best run: [mpirun -np 4] python docs/examples/sweep.py"""

from itertools import product

import edgeddl

RATES = (0.05, 0.005)
SMOOTHING = (0.0, 0.1)


def main() -> None:
    runs = {}
    for rate, smoothing in product(RATES, SMOOTHING):
        runs[rate, smoothing] = edgeddl.train(
            "resnet9",
            "shapes",
            image_size=16,
            limit_train=64,
            limit_test=32,
            batch_size=16,
            epochs=1,
            lr=rate,
            label_smoothing=smoothing,
            run_dir=f"runs/sweep/lr{rate}-smoothing{smoothing}",
            progress="none",
        )
    for (rate, smoothing), run in runs.items():
        print(f"lr {rate}, label smoothing {smoothing}: {run.accuracy:.1%}")
    best = max(runs.values(), key=lambda run: run.accuracy)
    print(f"best: {best.folder}")


if __name__ == "__main__":
    main()
