"""What every script of the workflow imports first: the garbage collector rests while modules load.

They make hundreds of thousands of objects that stay. To look through them again and again, and once more at the end,
takes a quarter of a training's start and end (3.3 instead of 4.5 CPU-seconds). ``io.job_log`` turns it on again.
"""

import gc

gc.disable()
