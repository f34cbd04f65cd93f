//! Three members over one history: what etcd as a whole does, with leases by its own clock, an alarm, and a raft log's index.
//! Decides at once; the network around it takes its time.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use store::etcd::messages::{
    AlarmMember, AlarmRequest, AlarmResponse, AuthenticateRequest, AuthenticateResponse, CompactionRequest, Ignored,
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
    RangeRequest, Request, RequestOp, ResponseHeader, StatusResponse, TxnRequest,
};
use tokio::time::Instant;
use tonic::Status;

use super::history::History;
use super::mutation::{Honest, Mutation};
use super::witness::Witness;

pub const MEMBERS: usize = 3;

/// Who may ask, and with what, once authentication is on.
pub const USER: (&str, &str) = ("bursar", "secret");

/// etcd's default, in little: runs write a few megabytes at most.
const QUOTA: u64 = 64 << 20;

/// A raft log is as long as this before anything was written: members and an election.
const INDEX_FIRST: u64 = 4;

#[derive(Clone, Debug)]
struct Lease {
    seconds: u64,
    until: Instant,
    /// The replica that it was granted to.
    owner: usize,
}

/// How a member is.
#[derive(Clone, Debug, Default)]
pub struct Member {
    pub down: bool,
    pub frozen: bool,
    /// Cut off from the other members: the revision it knows, and its log's index.
    pub behind: Option<(ResponseHeader, u64)>,
}

impl Member {
    fn is_well(&self) -> bool {
        !self.down && !self.frozen && self.behind.is_none()
    }
}

/// What a snapshot has: keys and leases.
#[derive(Clone, Debug)]
pub struct Snapshot {
    history: History,
    leases: BTreeMap<i64, Lease>,
}

#[derive(Debug)]
pub struct Cluster {
    pub history: History,
    leases: BTreeMap<i64, Lease>,
    lease_last: i64,
    index: u64,
    pub members: [Member; MEMBERS],
    /// Which of them leads the others.
    pub leader: usize,
    electing_until: Option<Instant>,
    /// Whether most members were well when somebody last looked.
    had_quorum: bool,
    pub alarm: bool,
    pub quota: u64,
    file_bytes: u64,
    pub authentication: bool,
    token: u64,
    /// Counts restores: what was under way to the etcd before is gone with its connections.
    pub restores: u64,
    /// How often replicas compacted.
    pub compactions: u64,
    pub mutation: Option<Mutation>,
    pub witness: Witness,
}

impl Cluster {
    pub fn new(mutation: Option<Mutation>) -> Cluster {
        Cluster {
            history: History::default(),
            leases: BTreeMap::new(),
            lease_last: 0,
            index: INDEX_FIRST,
            members: Default::default(),
            leader: 0,
            electing_until: None,
            had_quorum: true,
            alarm: false,
            quota: QUOTA,
            file_bytes: 0,
            authentication: false,
            token: 1,
            restores: 0,
            compactions: 0,
            mutation,
            witness: Witness::default(),
        }
    }

    /// Whether etcd as a whole gets on.
    pub fn has_quorum(&self) -> bool {
        let most = if self.mutation == Some(Mutation::AllMustAgree) { MEMBERS } else { MEMBERS / 2 + 1 };
        self.members.iter().filter(|member| member.is_well()).count() >= most
    }

    /// What keeps this member from answering with the others behind it: `None` if nothing does.
    pub fn hindered(&self, member: usize) -> Option<Status> {
        if !self.members[member].is_well() || !self.has_quorum() {
            return Some(Status::unavailable("etcdserver: no leader"));
        }
        self.electing_until.map(|_| Status::unavailable("etcdserver: leader changed"))
    }

    /// Time goes by: elections end, leases too. Every lease is given its whole time again by a new leader, as etcd does.
    pub fn tick(&mut self) {
        let (now, quorum) = (Instant::now(), self.has_quorum());
        if quorum && (!self.had_quorum || !self.members[self.leader].is_well()) {
            self.elect(Duration::from_secs(1));
        }
        self.had_quorum = quorum;
        if !quorum {
            return;
        }
        if self.electing_until.is_some_and(|until| until <= now) {
            self.electing_until = None;
            for lease in self.leases.values_mut() {
                lease.until = now + Duration::from_secs(lease.seconds);
            }
        }
        if self.electing_until.is_none() {
            let ended: Vec<i64> =
                self.leases.iter().filter(|(_, lease)| lease.until <= now).map(|(id, _)| *id).collect();
            ended.into_iter().for_each(|id| self.end_lease(id));
        }
    }

    /// Members choose another leader, which takes so long.
    pub fn elect(&mut self, time: Duration) {
        self.electing_until = Some(Instant::now() + time);
        let well = |member: &usize| self.members[*member].is_well();
        let others = (1..=MEMBERS).map(|step| (self.leader + step) % MEMBERS);
        if let Some(next) = others.clone().find(well) {
            self.leader = next;
        }
    }

    fn end_lease(&mut self, id: i64) {
        if self.leases.remove(&id).is_some() {
            self.index += 1;
            if self.mutation != Some(Mutation::KeyOutlivesLease) {
                self.history.end_lease(id);
            }
        }
    }

    /// The lease of whoever leads ends before its time. Whose it was.
    pub fn lose_lease(&mut self) -> Option<usize> {
        let lease = self.leader_lease()?;
        let owner = self.owner(lease);
        self.end_lease(lease);
        owner
    }

    /// The lease that the leader's key is bound to.
    pub fn leader_lease(&self) -> Option<i64> {
        self.history.get(super::LEADER).map(|found| found.lease)
    }

    /// The replica that leads by what is stored.
    pub fn leading(&self) -> Option<usize> {
        self.leader_lease().and_then(|lease| self.owner(lease))
    }

    /// Known for ended leases, too.
    fn owner(&self, lease: i64) -> Option<usize> {
        self.leases.get(&lease).map(|lease| lease.owner).or_else(|| self.witness.owner(lease))
    }

    pub fn save(&self) -> Snapshot {
        Snapshot { history: self.history.clone(), leases: self.leases.clone() }
    }

    /// What `etcdutl snapshot restore` does: keys and revision as they were, and a new log.
    pub fn restore(&mut self, snapshot: Snapshot) {
        let now = Instant::now();
        self.history = snapshot.history;
        self.leases = snapshot.leases;
        for lease in self.leases.values_mut() {
            lease.until = now + Duration::from_secs(lease.seconds);
        }
        if self.mutation != Some(Mutation::RewindUnseen) {
            self.index = INDEX_FIRST;
        }
        self.restores += 1;
    }

    /// Somebody else uses this etcd as well.
    pub fn write_of_others(&mut self, bytes: usize) {
        self.index += 1;
        if self.has_room(bytes as u64).is_err() {
            return;
        }
        let put = RequestOp::put(b"/others", &vec![7; bytes]);
        self.history.transact(&TxnRequest { success: vec![put], ..TxnRequest::default() }, &Honest);
        self.file_bytes = self.file_bytes();
    }

    /// What a restore is known by, for people.
    pub fn rewind_facts(&self) -> String {
        let kept = self.history.get(b"/bursar/test/lead").and_then(|found| found.value.try_into().ok());
        let (kept, revision) = (kept.map(i64::from_be_bytes), self.history.revision());
        format!("revision {revision}, index {}, kept {kept:?}", self.index)
    }

    pub fn compact_all(&mut self) {
        // That it was compacted already is fine.
        let _already = self.history.compact(self.history.revision());
    }

    /// Gives the free room of all files back.
    pub fn defragment(&mut self) {
        self.file_bytes = self.history.bytes();
    }

    pub fn file_bytes(&self) -> u64 {
        self.file_bytes.max(self.history.bytes())
    }

    /// The token that calls must carry, if any.
    pub fn token(&self) -> Option<String> {
        self.authentication.then(|| format!("token-{}", self.token))
    }

    /// No token that was given is good any more.
    pub fn withdraw_tokens(&mut self) {
        self.token += 1;
    }

    /// The answer to a call that has arrived, done at this moment.
    pub fn answer(&mut self, method: &str, from: usize, member: usize, body: &[u8]) -> Result<Vec<u8>, Status> {
        Ok(match method {
            "Range" => {
                let request: RangeRequest = decode(body)?;
                self.history.range(&request)?.encode_to_vec()
            }
            "Txn" => self.transact(from, &decode(body)?)?.encode_to_vec(),
            "Compact" => {
                let CompactionRequest { revision, .. } = decode(body)?;
                self.index += 1;
                if self.mutation != Some(Mutation::NeverCompacts) {
                    self.history.compact(revision)?;
                }
                self.compactions += 1;
                Ignored {}.encode_to_vec()
            }
            "LeaseGrant" => self.grant(from, &decode(body)?)?.encode_to_vec(),
            "LeaseRevoke" => {
                let LeaseRevokeRequest { id } = decode(body)?;
                if !self.leases.contains_key(&id) {
                    return Err(Status::not_found("etcdserver: requested lease not found"));
                }
                self.end_lease(id);
                Ignored {}.encode_to_vec()
            }
            "LeaseKeepAlive" => self.keep_alive(&decode(body)?).encode_to_vec(),
            "Status" => self.status(member).encode_to_vec(),
            "Alarm" => {
                let AlarmRequest { action, .. } = decode(body)?;
                match action {
                    1 => self.alarm = true,
                    2 => self.alarm = false,
                    _ => {}
                }
                let alarms = self.alarm.then_some(AlarmMember { member_id: 1, alarm: 1 });
                AlarmResponse { alarms: alarms.into_iter().collect() }.encode_to_vec()
            }
            "Authenticate" => {
                let AuthenticateRequest { name, password } = decode(body)?;
                if !self.authentication {
                    return Err(Status::failed_precondition("etcdserver: authentication is not enabled"));
                }
                if (name.as_str(), password.as_str()) != USER {
                    let text = "etcdserver: authentication failed, invalid user ID or password";
                    return Err(Status::invalid_argument(text));
                }
                AuthenticateResponse { token: self.token().unwrap_or_default() }.encode_to_vec()
            }
            _ => return Err(Status::unimplemented(method.to_owned())),
        })
    }

    fn transact(&mut self, from: usize, request: &TxnRequest) -> Result<impl Message + use<>, Status> {
        History::check(request)?;
        let puts = request.success.iter().filter_map(|operation| match &operation.request {
            Some(Request::Put(put)) => Some(put),
            _ => None,
        });
        let cost: u64 = puts.clone().map(|put| (put.key.len() + put.value.len()) as u64).sum();
        let has_puts = puts.clone().next().is_some();
        if has_puts {
            self.has_room(cost)?;
        }
        if puts.clone().any(|put| put.lease != 0 && !self.leases.contains_key(&put.lease)) {
            return Err(Status::not_found("etcdserver: requested lease not found"));
        }
        let (before, leading) = (self.history.get(super::COMMIT), self.leading());
        // A transaction that writes nothing is no entry of the log.
        self.index += u64::from(has_puts || !request.success.is_empty());
        let answer = match self.mutation {
            Some(mutation) => self.history.transact(request, &mutation),
            None => self.history.transact(request, &Honest),
        };
        self.file_bytes = self.file_bytes();
        if answer.succeeded {
            self.witness.saw(from, leading, request, before.as_ref());
        }
        Ok(answer)
    }

    fn has_room(&mut self, bytes: u64) -> Result<(), Status> {
        // Room inside the file is used before it grows.
        if self.file_bytes().max(self.history.bytes() + bytes) > self.quota {
            self.alarm = true;
        }
        match self.alarm {
            true => Err(Status::resource_exhausted("etcdserver: mvcc: database space exceeded")),
            false => Ok(()),
        }
    }

    fn grant(&mut self, from: usize, request: &LeaseGrantRequest) -> Result<LeaseGrantResponse, Status> {
        self.has_room(0)?;
        self.index += 1;
        self.lease_last += 1;
        let (id, seconds) = (self.lease_last, u64::try_from(request.ttl_seconds).unwrap_or(0).max(2));
        let until = Instant::now() + Duration::from_secs(seconds);
        self.leases.insert(id, Lease { seconds, until, owner: from });
        self.witness.granted(id, from);
        Ok(LeaseGrantResponse { id, error: String::new() })
    }

    fn keep_alive(&mut self, request: &LeaseKeepAliveRequest) -> LeaseKeepAliveResponse {
        let now = Instant::now();
        let seconds = match self.leases.get_mut(&request.id) {
            Some(lease) => {
                lease.until = now + Duration::from_secs(lease.seconds);
                lease.seconds
            }
            None if self.mutation == Some(Mutation::LossUntold) => 3,
            None => 0,
        };
        LeaseKeepAliveResponse { ttl_seconds: i64::try_from(seconds).unwrap_or(0) }
    }

    fn status(&self, member: usize) -> StatusResponse {
        let (header, raft_index) = match &self.members[member].behind {
            Some((header, index)) => (header.clone(), *index),
            None => (self.history.header(), self.index),
        };
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        StatusResponse {
            header: Some(header),
            raft_index,
            db_size: signed(self.file_bytes()),
            db_size_in_use: signed(self.history.bytes()),
            db_size_quota: signed(self.quota),
        }
    }

    /// Cuts a member off from the others, or lets it catch up.
    pub fn part(&mut self, member: usize, parted: bool) {
        self.members[member].behind = parted.then(|| (self.history.header(), self.index));
    }
}

fn decode<M: Message + Default>(body: &[u8]) -> Result<M, Status> {
    M::decode(body).map_err(|error| Status::invalid_argument(error.to_string()))
}
