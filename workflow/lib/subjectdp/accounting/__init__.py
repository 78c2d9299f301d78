"""Privacy accounting: from mechanisms and public facts to noise, and from plans to privacy statements.

=================  ==============================================================================================
``planning``       ``make_plan``: the plan of a run, calibrated
``statements``     ``privacy_statements``, ``privacy_report_text``, ``epsilon_over_rounds``
``events``         every mechanism as mixtures of Gaussians; to and from dp-accounting events
``sound``          the losses of a unit for what a plan really does
``published``      the papers' own accounting
``epsilon``        ε of a loss by PLD, RDP or PRV
``calibration``    σ for an ε, from the safe side
``joint``          the Skellam accounting of the joint-noise paper; ``table1`` its Table 1
=================  ==============================================================================================

Nothing is imported here: dp-accounting takes a second to load.
"""
