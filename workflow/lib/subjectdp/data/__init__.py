"""subjectdp.data"""
