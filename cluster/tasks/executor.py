"""The executor that runs the tasks of `fab` (configured in ../fabric.yml)."""

from __future__ import annotations

import sys
from typing import Any

import invoke

from cluster.errors import ClusterError


class Executor(invoke.Executor):
    """Runs each task once; the task itself connects to all boards in parallel.

    Tasks get the boards of -H as `c.only` and the arguments after -- as `c.words`, unchanged.
    Invoke would join them.
    """

    core: Any  # the parsed command line of `fab`

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
