#!/usr/bin/env python3
"""Runs a program under a unit's system call filter: filtered.py UNIT PROGRAM ARGUMENT...

The filter is the one that systemd would install: it expands the groups as the systemd of this machine does, and any
other call ends the process. libseccomp, which systemd needs itself, translates the names."""

import ctypes
import os
import subprocess
import sys

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000


def members(group):
    """Returns the calls and groups in a group."""
    command = ["systemd-analyze", "syscall-filter", group]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    words = [line.strip() for line in lines[1:]]
    return [word for word in words if word and not word.startswith("#")]


def allowed(unit):
    """Returns the names of the calls that a unit's SystemCallFilter= lines allow."""
    key = "SystemCallFilter="
    with open(unit, encoding="utf-8") as lines:
        words = [word for line in lines if line.startswith(key) for word in line[len(key) :].split()]
    calls = set()
    while words:
        word = words.pop()
        if word.startswith("~"):
            sys.exit(f"{unit}: {word} forbids calls: this script knows only lists of allowed ones")
        if word.startswith("@"):
            words += members(word)
        else:
            calls.add(word)
    return calls


def restrict(calls):
    """Installs a filter for this process and the programs that it starts."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    rules = library.seccomp_init(KILL_PROCESS)
    for call in calls:
        number = library.seccomp_syscall_resolve_name(call.encode())
        # Calls that this processor or library does not have are negative: systemd skips them, too.
        if number >= 0 and library.seccomp_rule_add(rules, ALLOW, number, 0) != 0:
            sys.exit(f"libseccomp does not take a rule for {call}")
    if library.seccomp_load(rules) != 0:
        sys.exit("the kernel does not take the filter")


restrict(allowed(sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])
