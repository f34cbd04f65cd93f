//! Requests to the server, and what they are answered with.

use anyhow::{Context as _, bail};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

pub async fn send(client: &Client, request: http::Request<Body>) -> anyhow::Result<(http::StatusCode, Value)> {
    let response = client.send(request).await.context("the server cannot be reached")?;
    let status = response.status();
    let bytes = response.into_body().collect_bytes().await.context("the answer was cut off")?;
    Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
}

/// All rows of a list, page by page.
pub async fn all(client: &Client, path: &str) -> anyhow::Result<Vec<Value>> {
    let (mut rows, mut query) = (Vec::new(), String::new());
    loop {
        let mut page = get(client, &format!("{path}{query}")).await?;
        if let Value::Array(items) = page["items"].take() {
            rows.extend(items);
        }
        match page["next"].as_str() {
            Some(next) => query = format!("?after={next}"),
            None => return Ok(rows),
        }
    }
}

pub async fn get(client: &Client, path: &str) -> anyhow::Result<Value> {
    let (status, answer) = send(client, http::Request::get(path).body(Body::empty())?).await?;
    if !status.is_success() {
        bail!("the server refused {path}: {}", answer["message"].as_str().unwrap_or_default());
    }
    Ok(answer)
}
