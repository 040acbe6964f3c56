"""Train on a folder of your own pictures, then classify one: python docs/examples/own_pictures.py

The pictures are drawn here; replace `draw_pictures` by your own folder PICTURES/CLASS/*.jpg.
"""

from pathlib import Path

import numpy as np
from PIL import Image

import edgeddl

COLOURS = {"blue": (30, 60, 200), "green": (40, 180, 60), "red": (210, 50, 40)}


def draw_pictures(folder: Path, count: int) -> None:
    random = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            noise = random.normal(0, 30, (40, 48, 3))
            pixels = np.clip(noise + colour, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def main() -> None:
    pictures = Path("pictures")
    draw_pictures(pictures, count=40)
    run = edgeddl.train(
        "resnet9",
        f"folder:{pictures}",
        image_size=16,
        test_fraction=0.2,
        epochs=3,
        batch_size=16,
        lr=0.01,
    )
    trained = run.load()
    picture = Image.open(pictures / "red" / "0.png").resize((16, 16))
    (probabilities,) = trained.probabilities(np.asarray(picture)[None])
    best = int(probabilities.argmax())
    print(f"accuracy {run.accuracy:.0%}, red/0.png is {trained.classes[best]}")


if __name__ == "__main__":
    main()
