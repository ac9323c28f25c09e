"""A fault drill with real processes: `python -m benchmarks.drill`.

It runs in a network namespace of its own, which has only loopback, and prints what the kernel counted there.

    actors.py           commands of imperfed in processes of their own, which can be killed
    consortium.py       files, keys and sites; what was seen of every fault
    rogue.py            a site that answers wrongly on purpose
    curious.py          a coordinator that asks for too much on purpose
    scenes              what is done to them, one module for each kind of fault: wrong_answers.py, strangers.py,
                        coordinators.py, asking.py, false_claims.py, links.py, slow_links.py, disks.py,
                        endings.py
    printed.py          the table on the terminal and on the page
"""
