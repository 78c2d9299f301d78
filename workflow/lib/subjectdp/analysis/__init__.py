"""From the outputs of the runs to tables, figures and a report; never imports torch."""
