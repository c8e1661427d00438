"""What the ``gpu_*`` scripts share: rows that are started, bounded, collected and written down."""
