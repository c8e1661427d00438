"""``dynamo.sglang`` is this project's worker; modules it lacks are found in upstream's package.

Other commands of the ai-dynamo wheel import ``dynamo.sglang.<module>``, so upstream's folder stays
at the end of ``__path__``, and ``__version__``, which those modules import, exists here too.
"""

from pkgutil import extend_path

from sglang_worker import __version__

__path__ = extend_path(__path__, __name__)
__all__ = ["__version__"]
