"""An annotator's work: what comes next, what is answered, checks, alarms."""
