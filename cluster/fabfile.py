"""Daily work with a cluster of boards: `fab -l` in this folder (docs/operations.md)."""

from __future__ import annotations

from invoke import Collection

from cluster.tasks import command, deployment, linpack, power, runs, status, training

namespace = Collection(
    status.status,
    deployment.deploy,
    linpack.linpack,
    training.train,
    training.logs,
    training.stop,
    runs.fetch,
    command.run,
    power.reboot,
    power.shutdown,
)
