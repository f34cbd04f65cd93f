//! What an organization is limited in: seventeen dimensions, in the order in which refusals name them.

use std::fmt;

/// One of the dimensions. The order is that of every report: a refusal for several names the first of them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    Instances,
    MemoryBytes,
    Cpu,
    Envs,
    Apps,
    Routes,
    PublicPorts,
    Ipv4,
    Hostnames,
    Volumes,
    VolumeBytes,
    Attachments,
    SnapshotsPerVolume,
    RestoreJobs,
    LogStreams,
    ExecSessions,
    ExecSessionsPerHour,
}

pub const COUNT: usize = 17;

impl Dimension {
    pub const ALL: [Dimension; COUNT] = [
        Dimension::Instances,
        Dimension::MemoryBytes,
        Dimension::Cpu,
        Dimension::Envs,
        Dimension::Apps,
        Dimension::Routes,
        Dimension::PublicPorts,
        Dimension::Ipv4,
        Dimension::Hostnames,
        Dimension::Volumes,
        Dimension::VolumeBytes,
        Dimension::Attachments,
        Dimension::SnapshotsPerVolume,
        Dimension::RestoreJobs,
        Dimension::LogStreams,
        Dimension::ExecSessions,
        Dimension::ExecSessionsPerHour,
    ];

    /// Those that instances take, which are reserved before they are allocated.
    pub const COMPUTE: [Dimension; 3] = [Dimension::Instances, Dimension::MemoryBytes, Dimension::Cpu];

    pub const fn name(self) -> &'static str {
        match self {
            Dimension::Instances => "max_instances",
            Dimension::MemoryBytes => "max_total_memory_bytes",
            Dimension::Cpu => "max_total_cpu_request",
            Dimension::Envs => "max_envs",
            Dimension::Apps => "max_apps",
            Dimension::Routes => "max_routes",
            Dimension::PublicPorts => "max_public_ports",
            Dimension::Ipv4 => "max_ipv4_allocations",
            Dimension::Hostnames => "max_hostnames",
            Dimension::Volumes => "max_volumes",
            Dimension::VolumeBytes => "max_total_volume_bytes",
            Dimension::Attachments => "max_volume_attachments",
            Dimension::SnapshotsPerVolume => "max_snapshots_per_volume",
            Dimension::RestoreJobs => "max_restore_jobs",
            Dimension::LogStreams => "max_log_streams",
            Dimension::ExecSessions => "max_exec_sessions",
            Dimension::ExecSessionsPerHour => "max_exec_sessions_per_hour",
        }
    }

    pub fn parse(name: &str) -> Option<Dimension> {
        Dimension::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Its place in [`Dimension::ALL`].
    pub const fn at(self) -> usize {
        self as usize
    }

    /// Whether every tier has to say something about it; the others are not enforced where a tier is silent.
    pub const fn is_required(self) -> bool {
        !matches!(
            self,
            Dimension::SnapshotsPerVolume
                | Dimension::LogStreams
                | Dimension::ExecSessions
                | Dimension::ExecSessionsPerHour
        )
    }

    /// Whether room comes back by itself as time goes by.
    pub const fn is_window(self) -> bool {
        matches!(self, Dimension::ExecSessionsPerHour)
    }

    /// Whether it is counted in parts of a unit.
    pub const fn is_fractional(self) -> bool {
        matches!(self, Dimension::Cpu)
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The names of accounts that count what is allocated, reservations aside: the scheduler's safety net.
pub const fn counted_name(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Instances => "counted.max_instances",
        Dimension::MemoryBytes => "counted.max_total_memory_bytes",
        _ => "counted.max_total_cpu_request",
    }
}

/// The dimension of an account, and whether it is the one that counts only what is allocated.
pub fn of_account(account: &str) -> Option<(Dimension, bool)> {
    match account.strip_prefix("counted.") {
        Some(name) => Dimension::parse(name).map(|dimension| (dimension, true)),
        None => Dimension::parse(account).map(|dimension| (dimension, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dimension_has_its_place_and_its_name() {
        for (place, dimension) in Dimension::ALL.into_iter().enumerate() {
            assert_eq!(dimension.at(), place);
            assert_eq!(Dimension::parse(dimension.name()), Some(dimension));
            assert_eq!(of_account(dimension.name()), Some((dimension, false)));
        }
        for dimension in Dimension::COMPUTE {
            assert_eq!(of_account(counted_name(dimension)), Some((dimension, true)));
        }
        assert_eq!(Dimension::parse("max_everything"), None);
    }
}
