//! A server that is the command of a leader, this test program itself; the store that it writes
//! to, and a client that writes through the proxy.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::connected;

const SERVER: &str = "INCUMBENT_TEST_SERVER_AT";
const STORE: &str = "INCUMBENT_TEST_STORE_AT";

/// The script of a command that serves at this address, and prints `up` when it does.
pub fn server(address: &str, store: &str) -> String {
    let program = env::current_exe().expect("a program").display().to_string();
    let test = "--exact proxy::worker::server_of_other_tests --nocapture";
    format!("{SERVER}={address} {STORE}={store} exec '{program}' {test}")
}

/// Sends each line, with the token of the term, to the store, and the same back to the client.
#[test]
fn server_of_other_tests() {
    let Ok(address) = env::var(SERVER) else { return };
    let token = env::var("INCUMBENT_TOKEN").expect("a token");
    let store = env::var(STORE).expect("an address");
    let listener = TcpListener::bind(address).expect("a port");
    println!("\nup"); // behind what the test harness printed
    for client in listener.incoming().flatten() {
        let (token, store) = (token.clone(), store.clone());
        thread::spawn(move || serve(&client, &token, &store));
    }
}

fn serve(mut client: &TcpStream, token: &str, store: &str) -> io::Result<()> {
    let mut store = connected(TcpStream::connect(store))?;
    let mut acknowledged = BufReader::new(store.try_clone()?).lines();
    for line in BufReader::new(client.try_clone()?).lines() {
        let written = format!("{token} {}\n", line?);
        store.write_all(written.as_bytes())?;
        acknowledged.next().transpose()?;
        client.write_all(written.as_bytes())?;
    }
    Ok(())
}

/// What leaders wrote, in the order in which it came.
#[derive(Clone)]
pub struct Store {
    pub address: String,
    tokens: Arc<Mutex<Vec<u64>>>,
}

impl Store {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let store = Self { address, tokens: Arc::default() };
        let all = store.clone();
        thread::spawn(move || {
            for leader in listener.incoming().flatten() {
                let store = all.clone();
                thread::spawn(move || store.receive(&leader));
            }
        });
        store
    }

    /// Keeps the token of each line, whether it is in order or not.
    fn receive(&self, mut leader: &TcpStream) -> io::Result<()> {
        for line in BufReader::new(leader.try_clone()?).lines() {
            let line = line?;
            let token = line.split(' ').next().and_then(|token| token.parse::<u64>().ok());
            self.tokens.lock().extend(token);
            leader.write_all(b"written\n")?;
        }
        Ok(())
    }

    pub fn tokens(&self) -> Vec<u64> {
        self.tokens.lock().clone()
    }
}

/// Writes line after line through the proxy, each until it is acknowledged.
pub struct Writer {
    thread: JoinHandle<Vec<u64>>,
    stops: Arc<AtomicBool>,
}

impl Writer {
    pub fn start(proxy: &str) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let (proxy, stopping) = (proxy.to_owned(), Arc::clone(&stops));
        let thread = thread::spawn(move || {
            let mut tokens = Vec::new();
            while !stopping.load(Ordering::Relaxed) {
                let _ = write(&proxy, &stopping, &mut tokens); // an error: it connects again
            }
            tokens
        });
        Self { thread, stops }
    }

    /// The tokens of all acknowledgements, in their order.
    pub fn stop(self) -> Vec<u64> {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

/// Writes on one connection until it fails.
fn write(proxy: &str, stops: &AtomicBool, tokens: &mut Vec<u64>) -> io::Result<()> {
    let mut stream = connected(TcpStream::connect(proxy))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while !stops.load(Ordering::Relaxed) {
        writeln!(stream, "{}", tokens.len())?;
        let Some(line) = lines.next().transpose()? else { return Ok(()) };
        tokens.extend(line.split(' ').next().and_then(|token| token.parse::<u64>().ok()));
        thread::sleep(Duration::from_millis(2)); // the machine has other tests to run
    }
    Ok(())
}
