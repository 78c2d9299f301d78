"""The silo's side: Flower's messages go to the process that `subjectdp silo` started."""

from subjectdp.flower import client_app

app = client_app()
