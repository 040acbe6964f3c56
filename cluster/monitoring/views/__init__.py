"""The contents of the dashboards, one module each."""

from __future__ import annotations

from cluster.monitoring.views.cluster import CLUSTER
from cluster.monitoring.views.communication import COMMUNICATION
from cluster.monitoring.views.health import HEALTH
from cluster.monitoring.views.training import TRAINING

ALL = (CLUSTER, TRAINING, COMMUNICATION, HEALTH)
