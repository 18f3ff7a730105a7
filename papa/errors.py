"""The errors a user can mend.

Every message is one sentence that says what is wrong, where, what was expected, what was found and what to do.
The command line prints the message alone and ends with an exit code that is not 0.
"""


class PapaError(Exception):
    """Base of every error that the user can mend."""


class TransientError(PapaError):
    """What may pass by itself, so that trying again is worth it: a lost worker, a service that cannot be reached."""


class HubUnreachableError(TransientError):
    """The hub does not answer, and what is wanted of it is not on this machine.

    Attributes:
        what: the encoder or dataset that is wanted.
        reason: why the hub cannot be asked.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"{what} is not on this machine and the hub cannot be reached ({reason}): check the network, or give "
            "local files"
        )
        self.what, self.reason = what, reason


class SpecError(PapaError):
    """The study's specification is missing, malformed or impossible."""


class DataError(PapaError):
    """A corpus is missing, empty, or a row does not fit its task."""


class EncoderError(PapaError):
    """An encoder or its tokenizer is missing, unsupported or unfit for the layout."""


class ArtifactError(PapaError):
    """A stored artifact is damaged, or was made for something else."""
