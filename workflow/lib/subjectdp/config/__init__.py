"""subjectdp.config"""
