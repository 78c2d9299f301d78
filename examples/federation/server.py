"""The server's side: it leads the federation that federation.yaml describes."""

from subjectdp.flower import server_app

app = server_app()
