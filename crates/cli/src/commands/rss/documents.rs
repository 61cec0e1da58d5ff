//! What `rss hash`, `plan`, `key` and `learn` print with `--json`: docs/schema/rss-v1.json.

use std::net::IpAddr;

use crate::document::document;

document! {
    /// `rss hash`: one packet's way.
    Hash {
        /// 1.
        version: u32,
        /// The key that the answer is for, in words.
        key: String,
        /// The address that the packet comes from.
        source: IpAddr,
        /// Its port; null where ports are not hashed.
        source_port: Option<u16>,
        /// The address that it goes to.
        destination: IpAddr,
        /// Its port; null where ports are not hashed.
        destination_port: Option<u16>,
        /// IP protocol; 253 for one without ports.
        protocol: u8,
        /// Whether it is a fragment.
        fragment: bool,
        /// What is hashed: nothing, addresses, or addresses and ports.
        fields: &'static str,
        /// Why these fields.
        reason: &'static str,
        /// Hashed bytes, hexadecimal.
        input: String,
        /// The hash.
        hash: u32,
        /// The same, hexadecimal.
        hash_hex: String,
        /// Name of the hash type.
        #[serde(rename = "type")]
        hash_type: &'static str,
        /// Number of the hash type.
        type_number: u8,
        /// The slot that the hash selects.
        slot: usize,
        /// Slots of the table.
        slots: usize,
        /// The bucket in that slot.
        bucket: u16,
        /// How many there are.
        buckets: usize,
        /// The worker of the bucket.
        worker: u16,
    }
    /// `rss plan`: sources that reach buckets.
    Plan {
        /// 1.
        version: u32,
        /// The key that the answer is for, in words.
        key: String,
        /// Whether the requests are to reach them, or the replies.
        #[cfg_attr(test, schemars(extend("enum" = ["requests", "replies"])))]
        direction: &'static str,
        /// Whether ports are hashed.
        ports_hashed: bool,
        /// Buckets that there are.
        buckets: usize,
        /// The sources.
        sources: Vec<Source>,
    }
    /// A source that reaches a bucket.
    Source {
        /// The bucket.
        bucket: u16,
        /// Its worker.
        worker: u16,
        /// The address.
        address: IpAddr,
        /// The port; null where ports make no difference.
        port: Option<u16>,
        /// The hash.
        hash: u32,
    }
    /// `rss key --make`: a key.
    Key {
        /// 1.
        version: u32,
        /// Hexadecimal.
        key: String,
    }
    /// `rss key --judge`: what a key does.
    Judgement {
        /// 1.
        version: u32,
        /// Hexadecimal.
        key: String,
        /// Bytes of the key.
        bytes: usize,
        /// Slots of the table.
        slots: usize,
        /// Buckets in it.
        buckets: usize,
        /// Whether it is of use.
        useful: bool,
        /// Why the key is useless.
        why: Option<String>,
        /// Every field reaches every slot.
        full_rank: bool,
        /// Both directions of a flow have one hash.
        symmetric: bool,
        /// Fields of IPv4.
        ipv4: Vec<Field>,
        /// Fields of IPv6.
        ipv6: Vec<Field>,
    }
    /// What a key does with one field.
    Field {
        /// Which field; its last 16 bits are judged.
        field: &'static str,
        /// log2 of the slots that it reaches.
        rank: u32,
        /// The best that could be.
        full_rank: u32,
        /// Buckets that it reaches.
        buckets_reached: usize,
        /// Values in the fullest bucket.
        most: u32,
        /// Values in the emptiest bucket.
        fewest: u32,
    }
    /// `rss learn`: what was learned of a card.
    Learn {
        /// 1.
        version: u32,
        /// The emulated card, the interface or the capture.
        card: String,
        /// From what it was learned.
        from: String,
        /// Whether it was.
        learned: bool,
        /// In a few words.
        verdict: String,
        /// Why nothing was learned.
        why: Option<String>,
        /// What else was noticed.
        findings: Vec<String>,
        /// Toeplitz under one key.
        toeplitz: bool,
        /// How fields are arranged before they are hashed: `plain`, `sorted`, `sorted-apart` or `or-xor`.
        arrangement: Option<&'static str>,
        /// Slots of the table; null where nothing tells of a table.
        slots: Option<usize>,
        /// Slots that no packet hit.
        slots_not_seen: Vec<usize>,
        /// From packets that came by themselves: what is known of each kind.
        kinds: Vec<Kind>,
        /// Probes sent, or different flows that came by themselves.
        probes: usize,
        /// How long it took.
        milliseconds: f64,
        /// Fresh packets, or flows kept aside, that were predicted.
        confirmed: usize,
        /// Other packets compared with an emulated card.
        unseen: usize,
        /// Of these, not predicted.
        wrong: usize,
    }
    /// What is known of one kind of packets.
    Kind {
        /// The kind.
        kind: &'static str,
        /// Different flows seen.
        flows: usize,
        /// Independent flows whose hash is known.
        determined: usize,
        /// As many determine every flow.
        dimensions: usize,
    }
    /// `rss learn --emulated all`: all emulated cards.
    Cards {
        /// 1.
        version: u32,
        /// What repeats it.
        seed: u64,
        /// The cards.
        cards: Vec<Learn>,
    }
    /// `rss plan --find-key`: a key that spreads flows evenly.
    PlanKey {
        /// 1.
        version: u32,
        /// Hexadecimal.
        key: String,
        /// As `ethtool -X IFACE hkey` takes it.
        hkey: String,
        /// Whose fields and table, in words.
        #[serde(rename = "for")]
        of: String,
        /// Keys that were tried.
        tried: usize,
        /// Flows.
        flows: usize,
        /// What flows are counted by: queue or bucket.
        unit: &'static str,
        /// By queue or bucket.
        load: Vec<KeyLoad>,
    }
    /// Flows of a queue or bucket under two keys.
    KeyLoad {
        /// Its number.
        number: usize,
        /// Part of the table's slots, 0 to 1.
        share: f64,
        /// Flows under the key that is there.
        before: usize,
        /// Flows under the key found.
        flows: usize,
    }
    /// `rss plan --change-to`: what another table moves.
    PlanChange {
        /// 1.
        version: u32,
        /// Whose table is changed, in words.
        #[serde(rename = "for")]
        of: String,
        /// What it is changed to.
        change_to: String,
        /// What flows are counted by: queue or bucket.
        unit: &'static str,
        /// Slots of the table.
        slots: usize,
        /// Slots that get another queue or bucket.
        moved_slots: Vec<MovedSlot>,
        /// Flows.
        flows: usize,
        /// Of them, those that move.
        moved_flows: usize,
        /// By queue or bucket.
        load: Vec<ChangeLoad>,
    }
    /// A slot that is changed.
    MovedSlot {
        /// Its number.
        slot: usize,
        /// What it had.
        from: u16,
        /// What it gets.
        to: u16,
    }
    /// What a queue or bucket has before and after a change.
    ChangeLoad {
        /// Its number.
        number: usize,
        /// Slots before.
        slots_before: usize,
        /// Slots after.
        slots_after: usize,
        /// Flows before.
        flows_before: usize,
        /// Flows after.
        flows_after: usize,
    }
}

#[cfg(test)]
#[test]
fn schema_of_rss() {
    flowlane_schema::Made::new(
        "rss-v1",
        "Documents of flowlane rss --json, version 1",
        "One document a command.",
    )
    .form::<Hash>()
    .form::<Plan>()
    .form::<PlanKey>()
    .form::<PlanChange>()
    .form::<Key>()
    .form::<Judgement>()
    .form::<Learn>()
    .form::<Cards>()
    .keep();
}
