"""How `fab` runs the tasks of this cluster (chosen in ../fabric.yml)."""

from __future__ import annotations

import sys
from typing import Any

import invoke

from cluster.errors import ClusterError


class Executor(invoke.Executor):
    """Runs each task once: the task itself goes to all boards at the same time.

    Tasks find the boards that -H names as `c.only`, and the words after -- as `c.words`: each as
    it was typed, where Invoke would join them.
    """

    core: Any  # how `fab` was called

    def execute(self, *tasks: Any) -> Any:
        hosts = self.core[0].args.hosts.value
        words = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
        self.config.update(only=hosts.split(",") if hosts else [], words=words)
        try:
            return super().execute(*tasks)
        except ClusterError as error:
            raise invoke.Exit(f"error: {error}", error.exit_code) from None
        except KeyboardInterrupt:
            raise invoke.Exit("interrupted", 130) from None
        except BrokenPipeError:  # such as `fab status | head`
            raise invoke.Exit(code=141) from None
