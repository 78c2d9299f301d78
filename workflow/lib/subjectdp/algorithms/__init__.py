"""subjectdp.algorithms"""
