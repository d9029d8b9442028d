#!/bin/bash
if [ "$(cat /app/first.txt)" = "Dear Ann," ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
