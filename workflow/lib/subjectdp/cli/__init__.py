"""subjectdp.cli"""
