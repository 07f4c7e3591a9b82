"""The pipelines that ship: NAME.yaml, and the code of its stages beside it. They use the public interface alone."""
