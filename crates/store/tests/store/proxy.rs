//! Something between a client and a server that breaks the way networks do.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes.
    Open,
    /// Nothing passes and nothing is closed. What was sent meanwhile arrives when it is open again.
    Silent,
    /// Requests arrive, answers do not, and never will on the connections of that time.
    AnswersLost,
    /// Everything takes this long.
    Slow(Duration),
}

struct State {
    mode: Mutex<Mode>,
    changed: Condvar,
    connections: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

impl State {
    /// Waits out a silence.
    fn mode(&self) -> Mode {
        let mode = self.mode.lock().unwrap();
        *self.changed.wait_while(mode, |mode| *mode == Mode::Silent).unwrap()
    }
}

pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// To a port of this machine.
    pub fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            mode: Mutex::new(Mode::Open),
            changed: Condvar::new(),
            connections: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                let shared = shared.clone();
                // In a silence not even the connection to the server comes about.
                thread::spawn(move || {
                    shared.mode();
                    let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
                    for stream in [&client, &server] {
                        stream.set_nodelay(true).unwrap();
                        shared.connections.lock().unwrap().push(stream.try_clone().unwrap());
                    }
                    let (back, state) = ((server.try_clone().unwrap(), client.try_clone().unwrap()), shared.clone());
                    thread::spawn(move || pump(&state, back.0, back.1, true));
                    pump(&shared, client, server, false);
                });
            }
        });
        Proxy { port: own, state }
    }

    pub fn set(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
        self.state.changed.notify_all();
    }

    /// Cuts every connection there is.
    pub fn reset(&self) {
        for stream in self.state.connections.lock().unwrap().drain(..) {
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        self.set(Mode::Open);
        self.reset();
        // Wakes the listener.
        let _woken = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn pump(state: &State, mut from: TcpStream, mut to: TcpStream, answers: bool) {
    let mut buffer = vec![0; 64 * 1024];
    let mut lost = false;
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => length,
        };
        match state.mode() {
            Mode::AnswersLost if answers => lost = true,
            Mode::Slow(time) => thread::sleep(time),
            _ => {}
        }
        if !lost && to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _closed = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
