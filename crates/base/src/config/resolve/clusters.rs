//! The list of clusters: taken as a whole from the source of highest precedence.

use crate::config::address::split_cluster;
use crate::config::file::{FileEntries, RawCluster};
use crate::config::problem::Problem;
use crate::config::raw::{RawEntry, RawValue};
use crate::config::resolver::{Resolver, Section};
use crate::config::settings::Cluster;
use crate::config::sources::CLUSTERS_VARIABLE;

/// A cluster that is not checked against the others yet.
struct ClusterCandidate {
    cluster: Cluster,
    label: String,
    place: String,
}

impl Resolver {
    /// `wants_one`: without any cluster in the sources, use the one on this machine.
    pub(super) fn clusters(
        &mut self,
        file: Option<Vec<RawCluster>>,
        environment: Option<&[String]>,
        flags: &[String],
        wants_one: bool,
    ) -> Vec<Cluster> {
        let mut chosen: Option<Vec<ClusterCandidate>> = None;
        if let Some(clusters) = file {
            let candidates: Vec<ClusterCandidate> = clusters
                .into_iter()
                .map(|raw| self.file_cluster(raw))
                .collect();
            self.check_names(&candidates);
            if !candidates.is_empty() {
                chosen = Some(candidates);
            }
        }
        let flags = (!flags.is_empty()).then_some(flags);
        for (texts, label, place) in [
            (environment, CLUSTERS_VARIABLE, "the environment"),
            (flags, "--ray-address", "the command line"),
        ] {
            let Some(texts) = texts else { continue };
            let candidates: Vec<ClusterCandidate> = texts
                .iter()
                .map(|text| self.named_cluster(text, label, place, chosen.as_deref()))
                .collect();
            self.check_names(&candidates);
            chosen = Some(candidates);
        }
        let default = wants_one.then(|| ClusterCandidate {
            cluster: Cluster::default(),
            label: String::new(),
            place: "default".to_owned(),
        });
        let mut candidates = chosen.unwrap_or_else(|| Vec::from_iter(default));
        for ClusterCandidate { cluster, place, .. } in &mut candidates {
            let first = self.settings.len();
            cluster.read(self);
            for setting in &mut self.settings[first..] {
                setting.origin.clone_from(place);
            }
        }
        let clusters = candidates.into_iter();
        clusters.map(|candidate| candidate.cluster).collect()
    }

    /// Reads a cluster from `entries`; a source of higher precedence may replace it.
    fn cluster(&mut self, entries: FileEntries) -> Cluster {
        for (key, entry) in entries {
            self.entries.insert((Cluster::NAME, key), vec![entry]);
        }
        let mut cluster = Cluster::default();
        let first = self.settings.len();
        cluster.read(self);
        self.settings.truncate(first);
        self.entries
            .retain(|(section, _), _| *section != Cluster::NAME);
        cluster
    }

    fn file_cluster(&mut self, raw: RawCluster) -> ClusterCandidate {
        let without_address = raw.entries.iter().all(|(key, _)| *key != "ray_address");
        let first = self.problems.len();
        let cluster = self.cluster(raw.entries);
        if without_address {
            // Position where the problem would be if the key were given.
            let before = self.problems[first..]
                .iter()
                .take_while(|problem| problem.key == "cluster.name");
            let at = first + before.count();
            let problem = Problem {
                key: "cluster.ray_address".to_owned(),
                place: raw.place.clone(),
                found: "a [[cluster]] without it".to_owned(),
                expected: "the address of the head's dashboard, such as \"http://127.0.0.1:8265\""
                    .to_owned(),
                hint: None,
            };
            self.problems.insert(at, problem);
        }
        let files = [
            ("cluster.gcs_ca_file", &cluster.gcs_ca_file),
            ("cluster.gcs_cert_file", &cluster.gcs_cert_file),
            ("cluster.gcs_key_file", &cluster.gcs_key_file),
        ];
        let missing = files.iter().find(|(_, file)| file.is_none());
        if let (Some((key, _)), true) = (missing, files.iter().any(|(_, file)| file.is_some())) {
            self.problems.push(Problem {
                key: (*key).to_owned(),
                place: raw.place.clone(),
                found: "nothing, although another file for TLS of the GCS is given".to_owned(),
                expected: "gcs_ca_file, gcs_cert_file and gcs_key_file, or none of them".to_owned(),
                hint: Some("Ray's GCS wants a client certificate where it speaks TLS".to_owned()),
            });
        }
        ClusterCandidate {
            cluster,
            label: "cluster.name".to_owned(),
            place: raw.place,
        }
    }

    /// Parses `NAME=URL`. If a lower source has a cluster of this name, its token file, GCS settings and path are
    /// kept: only the address differs between environments, and overriding it must not drop the token.
    fn named_cluster(
        &mut self,
        text: &str,
        label: &str,
        place: &str,
        below: Option<&[ClusterCandidate]>,
    ) -> ClusterCandidate {
        let (name, url) = split_cluster(text);
        let keys = [("name", name), ("ray_address", Some(url))];
        let entries = keys.into_iter().filter_map(|(key, value)| {
            let entry = RawEntry {
                label: label.to_owned(),
                place: place.to_owned(),
                value: RawValue::Word(value?.to_owned()),
            };
            Some((key, entry))
        });
        let mut cluster = self.cluster(entries.collect());
        let mut below = below.unwrap_or_default().iter();
        if let Some(same) = below.find(|below| below.cluster.name == cluster.name) {
            cluster.token_file = same.cluster.token_file.clone();
            cluster.gcs_address = same.cluster.gcs_address.clone();
            cluster.gcs_ca_file = same.cluster.gcs_ca_file.clone();
            cluster.gcs_cert_file = same.cluster.gcs_cert_file.clone();
            cluster.gcs_key_file = same.cluster.gcs_key_file.clone();
            cluster.path = same.cluster.path;
        }
        ClusterCandidate {
            cluster,
            label: label.to_owned(),
            place: place.to_owned(),
        }
    }

    fn check_names(&mut self, candidates: &[ClusterCandidate]) {
        for (i, candidate) in candidates.iter().enumerate() {
            let name = &candidate.cluster.name;
            if candidates[..i]
                .iter()
                .any(|earlier| earlier.cluster.name == *name)
            {
                self.problems.push(Problem {
                    key: candidate.label.clone(),
                    place: candidate.place.clone(),
                    found: format!("a second cluster named \"{name}\""),
                    expected: "a name of its own for each cluster".to_owned(),
                    hint: Some(match candidate.label.as_str() {
                        "cluster.name" => "give it a `name`".to_owned(),
                        _ => "write NAME=URL, as in gpu=http://10.0.0.2:8265".to_owned(),
                    }),
                });
            }
        }
    }
}
