"""What a site's updates have cost of its privacy, in all runs of its state folder, and the secret behind their noise.

The key of the noise follows from the site's secret, from the whole message, and from the weights that are to be hidden.
So a message that comes again is answered with the same noise: asking often averages nothing away, and costs nothing.
Any other message, in whatever it differs, gets noise of its own, and is charged before it is answered.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import replace
from pathlib import Path

import msgspec
from torch import Tensor

from imperfed.core.mechanism import PrivacyMechanism
from imperfed.core.privacy_cost import spent_on
from imperfed.data.federate import FederatedData
from imperfed.engine.failures import Declined
from imperfed.engine.site import NoiseKey
from imperfed.flower.messages.payload import Payload
from imperfed.flower.messages.run_info import RunInfo
from imperfed.flower.site.last_answer import digest_of
from imperfed.flower.site.runtime import LEDGER, LocalSite, RemoteSite
from imperfed.flower.site.sealed_words import read_sealed, write_sealed
from imperfed.flower.site.withheld import WithheldError
from imperfed.results.privacy_summary import PrivacySummary
from imperfed.results.private_runs import not_covered

NOT_ASKED = ("evaluate", "base", "best", "alive")
"""Words of a message on which the update does not depend, and which may differ when it is sent again."""
ASKED_OF = ("scale", "annotated", "down")
"""The parts of a message on which the update depends."""


class Release(msgspec.Struct, frozen=True):
    """One update that was sent."""

    run: str
    round: int
    noise: float
    """The standard deviation of its noise, divided by the most that the site's rows can change."""
    digest: str
    """Of the key of its noise."""


class PrivacyLedger(msgspec.Struct, frozen=True):
    """The updates that a site has sent with noise."""

    secret: bytes
    releases: tuple[Release, ...] = ()

    @classmethod
    def read(cls, state: Path) -> PrivacyLedger:
        """Return the ledger in a state folder, a new one if there is none."""
        return read_sealed(state / LEDGER, cls) or cls(secrets.token_bytes(32))

    def write(self, state: Path) -> None:
        """Keep the ledger, before anything that it counts is sent."""
        write_sealed(state / LEDGER, self)

    def key(self, message: str, w: Tensor) -> bytes:
        """Return the key of the noise on these weights in the answer to a message."""
        hidden = hashlib.sha256(w.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        return hmac.new(self.secret, f"{message}/{hidden}".encode(), "sha256").digest()

    def noises(self, run: str = "") -> list[float]:
        """Return the noise of every update, of one run if it is named."""
        return [release.noise for release in self.releases if run in ("", release.run)]


def charging(place: LocalSite, run_info: RunInfo, mechanism: PrivacyMechanism, payload: Payload) -> NoiseKey:
    """Return how the noise of the answer to a message is keyed; a new answer is charged, or refused."""
    words = {name: word for name, word in payload.words.items() if name not in NOT_ASKED}
    asked = Payload(words, {name: tree for name, tree in payload.trees.items() if name in ASKED_OF})
    message = digest_of("update", asked)

    def key_of(round: int, site: int, w: Tensor) -> bytes:
        ledger = PrivacyLedger.read(place.state)
        key = ledger.key(message, w)
        digest = hashlib.sha256(key).hexdigest()
        if any(release.digest == digest for release in ledger.releases):
            return key
        release = Release(run_info.run, round, mechanism.multiplier, digest)
        ledger = msgspec.structs.replace(ledger, releases=(*ledger.releases, release))
        refuse_overspent(place, ledger, run_info.run, mechanism)
        ledger.write(place.state)
        return key

    return key_of


def refuse_overspent(place: LocalSite, ledger: PrivacyLedger, run: str, mechanism: PrivacyMechanism) -> None:
    """Refuse an update that would bring the site above what the run, or its own policy, may spend."""
    allowed = (
        (mechanism.epsilon_max, mechanism.delta, run, "privacy.epsilon_max"),
        (place.policy.most_epsilon, place.policy.delta, "", "most_epsilon, over all runs"),
    )
    for most, delta, counted, name in allowed:
        if most and (epsilon := spent_on(ledger.noises(counted), delta)) > most:
            why = f"another update: it would bring epsilon to {epsilon:.3g}, and {most:g} is allowed ({name})"
            raise WithheldError(Declined(f"{place.name} refuses {why}"))


def charge(remote: RemoteSite, place: LocalSite, run_info: RunInfo, payload: Payload) -> None:
    """Let a site pay for the answer to a message, if the run is private."""
    spec = remote.runtime.spec
    if spec.privacy is not None and not spec.privacy.sums:  # a share of a sum is paid for when it is given
        remote.runtime.spec = replace(spec, noise_key=charging(place, run_info, spec.privacy, payload))


def own_privacy(
    place: LocalSite, run: str, remote: RemoteSite, data: FederatedData, early: bool
) -> PrivacySummary | None:
    """Return what a run has cost this site, by its own count; None if the run is not private.

    `early`: whether the run ended before its last round.
    """
    mechanism = remote.config.privacy
    if mechanism is None:
        return None
    noises = PrivacyLedger.read(place.state).noises(run)
    return PrivacySummary(
        mechanism=mechanism.name,
        epsilon=spent_on(noises, mechanism.delta) if mechanism.multiplier else None,
        delta=mechanism.delta,
        releases=len(noises),
        early=early,
        simulated=False,
        not_covered=tuple(not_covered(remote.config, data)),
    )
