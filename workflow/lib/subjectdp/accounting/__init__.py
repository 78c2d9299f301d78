"""subjectdp.accounting"""
