//! Somebody else's service, as a test makes it: a meter, or who is told of usage. It answers, fails or says nothing, as it is told.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Debug, PartialEq)]
pub enum Mood {
    /// Answers with this.
    Answers(u16, String),
    /// Accepts what does not have this text in it, and finds fault with the rest.
    Refuses(String),
    /// Takes the request, and says nothing.
    Silent,
    /// Closes every connection.
    Down,
}

/// The body of each request that was answered with success.
type Heard = Arc<Mutex<Vec<String>>>;

pub struct Other {
    pub url: String,
    mood: Arc<Mutex<Mood>>,
    heard: Heard,
    /// How many requests came in, answered or not.
    asked: watch::Receiver<usize>,
}

impl Other {
    pub async fn start(mood: Mood) -> Other {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (mood, heard) = (Arc::new(Mutex::new(mood)), Heard::default());
        let (tell, asked) = watch::channel(0);
        let (now, noted) = (mood.clone(), heard.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tell.send_modify(|count| *count += 1);
                let now = now.lock().expect("no panic").clone();
                tokio::spawn(answer(stream, now, noted.clone()));
            }
        });
        Other { url, mood, heard, asked }
    }

    pub fn be(&self, mood: Mood) {
        *self.mood.lock().expect("no panic") = mood;
    }

    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("no panic").clone()
    }

    /// How many requests came in so far.
    pub fn count(&self) -> usize {
        *self.asked.borrow()
    }

    /// Waits for so many more requests.
    pub async fn asked(&mut self, more: usize) {
        let now = *self.asked.borrow();
        let wait = self.asked.wait_for(|count| *count >= now + more);
        tokio::time::timeout(crate::harness::PATIENCE, wait).await.expect("it is asked").expect("it runs");
    }
}

async fn answer(mut stream: TcpStream, mood: Mood, heard: Heard) {
    if mood == Mood::Down {
        return;
    }
    let Some(body) = request(&mut stream).await else { return };
    let mood = match mood {
        Mood::Refuses(text) if body.contains(&text) => Mood::Answers(400, "what is that?".into()),
        Mood::Refuses(_) => Mood::Answers(200, "accepted".into()),
        mood => mood,
    };
    match mood {
        Mood::Answers(status, text) => {
            if status < 300 {
                heard.lock().expect("no panic").push(body);
            }
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
                text.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
        // Until the other side gives up.
        _ => drop(stream.read(&mut [0; 1]).await),
    }
}

/// The body of a request.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let (mut request, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let read = stream.read(&mut buffer).await.ok()?;
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(body.to_owned());
            }
        }
        if read == 0 {
            return None;
        }
    }
}

/// A Prometheus that says this number, and that it is of this moment.
pub fn measures(number: i64) -> Mood {
    let part = |name: &str, said: String| serde_json::json!({"metric": {"bursar": name}, "value": [1, said]});
    let answer = serde_json::json!({"status": "success", "data": {
        "resultType": "vector", "result": [part("value", number.to_string()), part("at", "99999999999".into())],
    }});
    Mood::Answers(200, answer.to_string())
}
