//! Whose request is it? A client certificate, a token of the token file, a service account token; otherwise anonymous.
//!
//! A wrong credential is never taken for "no credential": whoever shows one that does not hold is told so (401)
//! instead of being served as somebody else.

mod impersonation;
mod reviews;
mod service_account;
mod token_file;

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;

pub use impersonation::{Impersonation, ImpersonationError, impersonate};
pub use reviews::{RequestError, token_request, token_review};
pub use service_account::{
    Accounts, Bound, BoundKind, DEFAULT_ISSUER, Mint, TokenError, TokenRequestError, TokenSigner, TokenSignerError,
};
pub use token_file::{FILE_BYTES_MAX as TOKEN_FILE_BYTES_MAX, TokenFile, TokenFileError};

use crate::identity::Identity;
use crate::tls::Peer;

/// Longer tokens are refused unread. A service account token with several audiences is about 1.5 KiB.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The credential does not hold. Says nothing about why: the details would help only who guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized")]
pub struct Unauthorized;

/// All ways to prove an identity.
pub struct Authenticator {
    tokens: ArcSwap<TokenFile>,
    signer: TokenSigner,
    accounts: Arc<dyn Accounts>,
    anonymous: Arc<Identity>,
}

impl Authenticator {
    pub fn new(tokens: TokenFile, signer: TokenSigner, accounts: Arc<dyn Accounts>) -> Authenticator {
        let tokens = ArcSwap::from_pointee(tokens);
        Authenticator { tokens, signer, accounts, anonymous: Arc::new(Identity::anonymous()) }
    }

    /// From now on the static tokens are these; who shows one that is gone is nobody any more.
    pub fn replace_tokens(&self, tokens: TokenFile) {
        self.tokens.store(Arc::new(tokens));
    }

    pub fn signer(&self) -> &TokenSigner {
        &self.signer
    }

    /// `now` is in seconds since 1970. A certificate counts before a token, as in Kubernetes: kubectl sends both when
    /// its file has both.
    pub fn authenticate(
        &self,
        peer: Option<&Peer>,
        headers: &HeaderMap,
        now: u64,
    ) -> Result<Arc<Identity>, Unauthorized> {
        if let Some(peer) = peer {
            // No authority of ours makes a certificate for a part of the server; one of others may have.
            let holds = now <= peer.not_after && !peer.identity.is_internal();
            return if holds { Ok(Arc::clone(&peer.identity)) } else { Err(Unauthorized) };
        }
        let mut given = headers.get_all(AUTHORIZATION).iter();
        match (given.next(), given.next()) {
            (None, _) => Ok(Arc::clone(&self.anonymous)),
            (Some(header), None) => {
                let token = bearer(header.to_str().map_err(|_| Unauthorized)?).ok_or(Unauthorized)?;
                self.authenticate_token(token, &[], now)
            }
            // Two headers: which one was meant is anybody's guess.
            (Some(_), Some(_)) => Err(Unauthorized),
        }
    }

    /// A bearer token by itself, for one of `audiences` (none: the API server's own).
    pub fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
        now: u64,
    ) -> Result<Arc<Identity>, Unauthorized> {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
            return Err(Unauthorized);
        }
        let ours = audiences.is_empty() || audiences.iter().any(|audience| self.signer.is_own_audience(audience));
        if let (Some(identity), true) = (self.tokens.load().get(token), ours) {
            return Ok(identity);
        }
        self.signer.verify(token, audiences, self.accounts.as_ref(), now).map_err(|_| Unauthorized)
    }
}

/// `Bearer <token>`: the scheme in any case, one token, nothing after it.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(char::is_whitespace))
        .then_some(token)
}
