"""Privacy accounting: from mechanisms and public facts to noise, and from plans to privacy statements.

=================  ==============================================================================================
``plan_run``       the plan of a run, from its configuration and its partition
``make_plan``      the plan of a mechanism on a federation, calibrated
``statements``     ``privacy_statements``, ``privacy_report_text``, ``epsilon_over_rounds``
``events``         every mechanism as mixtures of Gaussians; to and from dp-accounting events
``sound``          the privacy losses of a unit under a plan
``published``      the papers' own accounting
``epsilon``        ε of a privacy loss by PLD or RDP
``calibration``    σ for a target ε
``renyi``          Rényi divergences, the joint-noise paper's too; ``table1`` its Table 1
=================  ==============================================================================================

Nothing is imported here: dp-accounting takes a second to load.
"""
