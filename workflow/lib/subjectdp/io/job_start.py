"""What every script of the workflow imports first, so that it starts sooner.

A job of ``subjectdp run`` is handed to a process that has loaded everything (``io.loaded_jobs``). Any other loads for
itself; meanwhile the garbage collector rests. To look through hundreds of thousands of objects that stay, again and
again, takes a quarter of a training's start and end. ``io.job_log`` turns it on again.
"""

import gc

from subjectdp.io.loaded_jobs import hand_over

gc.disable()
hand_over()
