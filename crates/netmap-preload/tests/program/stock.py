"""Threads, processes, sockets and every way of waiting, in a program that knows nothing of netmap."""
import concurrent.futures
import mmap
import multiprocessing
import os
import select
import selectors
import socket
import subprocess
import tempfile


def echo(listener, clients):
    with selectors.EpollSelector() as waiting:
        waiting.register(listener, selectors.EVENT_READ)
        served = 0
        while served < clients:
            for key, _ in waiting.select(10):
                if key.fileobj is listener:
                    waiting.register(listener.accept()[0], selectors.EVENT_READ)
                elif data := key.fileobj.recv(65536):
                    key.fileobj.sendall(data)
                else:
                    waiting.unregister(key.fileobj)
                    key.fileobj.close()
                    served += 1


def talk(address, number):
    with socket.create_connection(address) as peer:
        left, got = bytes([number]) * 100_000, b""
        peer.setblocking(False)
        while len(got) < 100_000:
            if number % 2:
                select.select([peer], [peer] if left else [], [], 10)
            else:
                poll = select.poll()
                poll.register(peer, select.POLLIN | (select.POLLOUT if left else 0))
                poll.poll(10_000)
            try:
                got += peer.recv(65536)
            except BlockingIOError:
                left = left[peer.send(left[:4096]) :] if left else left
        return set(got) == {number}


def square(number):
    return number * number


def main():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with concurrent.futures.ThreadPoolExecutor(9) as threads:
            serving = threads.submit(echo, listener, 8)
            talks = [threads.submit(talk, listener.getsockname(), number) for number in range(8)]
            print([one.result(30) for one in talks], serving.result(30))
    with multiprocessing.get_context("fork").Pool(3) as processes:
        print(processes.map(square, range(10)))
    with tempfile.TemporaryFile() as file:
        file.truncate(8192)
        with mmap.mmap(file.fileno(), 8192) as pages:
            pages[5000:5005] = b"hello"
            print(os.pread(file.fileno(), 5, 5000))
    print(subprocess.run(["sh", "-c", "echo $((6 * 7)) | cat"], capture_output=True, check=True).stdout)
    if (child := os.fork()) == 0:
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


main()
