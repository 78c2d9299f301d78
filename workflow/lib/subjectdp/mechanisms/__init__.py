"""subjectdp.mechanisms"""
