"""The subprocess of subprocess_stops.py; a debugger stops it at line 5."""
import sys

x = int(sys.argv[1])
y = x + 1
print("child", y)
