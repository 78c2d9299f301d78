"""subjectdp.training"""
