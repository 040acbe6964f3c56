"""Train your own Chainer model: python docs/examples/own_model.py

Keep the model of a real project in a module of its own: a checkpoint contains the name of the
model, and `__main__:SmallNet` exists only in this script.
"""

import chainer
import chainer.functions as F
import chainer.links as L

import edgeddl


class SmallNet(chainer.Chain):
    def __init__(self, classes):
        super().__init__()
        with self.init_scope():
            self.first = L.Convolution2D(3, 16, 3, pad=1, nobias=True)
            self.norm = L.BatchNormalization(16)
            self.second = L.Convolution2D(16, 32, 3, stride=2, pad=1)
            self.out = L.Linear(32, classes)

    def forward(self, images):
        hidden = F.max_pooling_2d(F.relu(self.norm(self.first(images))), 2)
        hidden = F.relu(self.second(hidden))
        return self.out(F.average(hidden, axis=(2, 3)))


def main() -> None:
    run = edgeddl.train(SmallNet, "shapes", limit_train=1000, limit_test=200, epochs=4, lr=0.1)
    trained = run.load()
    print(f"{trained.description.name}: {trained.model.count_params():,} parameters")
    print(f"accuracy {run.accuracy:.0%} for {len(trained.classes)} classes")


if __name__ == "__main__":
    main()
