#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""An SMTP server on loopback that delivers nothing.

  smtp-sink.py DIR

It writes DIR/port, then every mail to the end of DIR/mbox and every envelope
address to DIR/to.
"""
import os
import socketserver
import sys

if sys.argv[1:] in (["-h"], ["--help"]):
    print(__doc__)
    sys.exit(0)
if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
    print(__doc__, file=sys.stderr)
    sys.exit(2)
DIR = sys.argv[1]


def append(name, data):
    with open(os.path.join(DIR, name), "ab") as f:
        f.write(data)


class Session(socketserver.StreamRequestHandler):
    def say(self, text):
        self.wfile.write(text.encode() + b"\r\n")

    def mail(self):
        self.say("354 end with a dot")
        lines = [b"From sink Thu Jan  1 00:00:00 1970\n"]
        for line in self.rfile:
            line = line.rstrip(b"\r\n")
            if line == b".":
                break
            if line.startswith(b"."):
                line = line[1:]
            # An mbox knows no other way; git am would see the quoting.
            if line.startswith(b"From "):
                line = b">" + line
            lines.append(line + b"\n")
        append("mbox", b"".join(lines) + b"\n")
        self.say("250 kept")

    def handle(self):
        self.say("220 sink")
        for line in self.rfile:
            verb = line[:4].upper()
            if verb == b"EHLO":
                self.say("250-sink\r\n250 8BITMIME")
            elif verb == b"RCPT":
                append("to", line.split(b"<")[1].split(b">")[0] + b"\n")
                self.say("250 ok")
            elif verb == b"DATA":
                self.mail()
            elif verb == b"QUIT":
                self.say("221 bye")
                return
            else:
                self.say("250 ok")


with socketserver.TCPServer(("127.0.0.1", 0), Session) as server:
    append("port.new", str(server.server_address[1]).encode())
    os.rename(os.path.join(DIR, "port.new"), os.path.join(DIR, "port"))
    server.serve_forever()
