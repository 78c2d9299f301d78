"""Privacy accounting: from mechanisms and public facts to noise, and from plans to privacy statements.

``make_plan`` makes a plan, with its noise by ``calibration``; ``statements`` says what it gives. Between them
``events`` has the mechanisms as mixtures of Gaussians, ``sound`` and ``published`` the losses of a plan, and
``epsilon`` and ``renyi`` their ε. Nothing is imported here: dp-accounting takes a second to load.
"""
