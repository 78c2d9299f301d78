"""``snakemake`` that looks at its jobs every two seconds.

The Slurm plugin waits ten seconds longer after each look that finds no job ended. The jobs of these tests take seconds.
"""

import asyncio

import snakemake.cli
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

SECONDS = 2.0


async def sleep(_: RemoteExecutor) -> None:
    await asyncio.sleep(SECONDS)


if __name__ == "__main__":
    RemoteExecutor.sleep = sleep
    snakemake.cli.main()
