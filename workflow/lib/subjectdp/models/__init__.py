"""subjectdp.models"""
