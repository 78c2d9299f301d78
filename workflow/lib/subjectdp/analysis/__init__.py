"""subjectdp.analysis"""
