"""Fabric tasks to operate a cluster of boards: run `fab -l` in this folder."""

from __future__ import annotations

from invoke import Collection

from cluster.tasks import data, deployment, fetch, linpack, power, run_command, status, training

namespace = Collection(
    status.status,
    deployment.deploy,
    linpack.linpack,
    data.data,
    training.train,
    training.logs,
    training.stop,
    fetch.fetch,
    run_command.run,
    power.reboot,
    power.shutdown,
)
